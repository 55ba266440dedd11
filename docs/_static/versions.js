// Fills the version selector from versions.json, which lies beside the folders of all versions.
// Without it, as in a site that is opened from a file, the selector has the present version only.
(async () => {
  const select = document.getElementById("site-version");
  if (!select || location.protocol === "file:") return;
  const root = new URL(select.dataset.root, location.href);
  const answer = await fetch(new URL("../versions.json", root)).catch(() => null);
  if (!answer || !answer.ok) return;
  const current = select.value;
  const versions = await answer.json();
  select.replaceChildren(...versions.map((name) => new Option(name, name, name === current, name === current)));
  select.addEventListener("change", async () => {
    const home = new URL(`../${encodeURIComponent(select.value)}/`, root);
    const page = new URL(select.dataset.page, home);
    const found = await fetch(page, { method: "HEAD" }).catch(() => null);
    location.assign(found && found.ok ? page : home);
  });
})();
