// The theme, before the page is drawn: system, light or dark. A classic script, since modules run later.
"use strict";

(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const themes = ["system", "light", "dark"];
  let chosen = "system";
  try {
    chosen = localStorage.getItem("headgate-theme") ?? chosen;
  } catch {
    // Storage is off: the theme is that of the system at each visit.
  }

  function apply() {
    const theme = chosen === "system" ? (dark.matches ? "dark" : "light") : chosen;
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${chosen}`;
    dispatchEvent(new Event("theme"));
  }

  apply();
  dark.addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      chosen = themes[(themes.indexOf(chosen) + 1) % themes.length];
      try {
        localStorage.setItem("headgate-theme", chosen);
      } catch {
        // As above.
      }
      apply();
    });
  });
})();
