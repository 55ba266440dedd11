// The theme, before the page is drawn: that of the system, or the one chosen. A classic script, as modules run later.
"use strict";

{
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const set = (theme) => {
    root.dataset.theme = theme;
    dispatchEvent(new Event("theme"));
  };
  const follow = () => set(dark.matches ? "dark" : "light");
  follow();
  dark.addEventListener("change", follow);
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    button.addEventListener("click", () => set(root.dataset.theme === "dark" ? "light" : "dark"));
  });
}
