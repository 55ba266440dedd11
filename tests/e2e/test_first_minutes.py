"""The first minutes: the file that `headgate init` writes is served as it is, and `headgate doctor` knows the gate."""

from tests.e2e import programs


def test_a_first_file_is_checked_and_served(tmp_path):
    with programs.origin() as origin:
        answers = ("--origin", origin.url, "--rule", "1/min burst 2", "--listen", "127.0.0.1:0")
        assert programs.command("init", *answers, folder=tmp_path).code == 0
        assert programs.command("config", "check", folder=tmp_path).out == "headgate.toml: valid, 1 domain\n"
        with programs.headgate(tmp_path, "serve", "--admin", "127.0.0.1:0") as gate:
            assert gate.statuses(3) == [200, 200, 503]
            address = gate.ready["admin"].removeprefix("http://")
            done = programs.command("doctor", "--admin", address, folder=tmp_path)
            assert f"ok      clock of {address}: within 2 s of this one\n" in done.out
