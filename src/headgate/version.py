"""The version of headgate, apart from the names of the package, which import all others."""

VERSION = "0.1.0"
