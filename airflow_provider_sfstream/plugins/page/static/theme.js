// Light or dark, as Airflow's UI around this page. Not a module: it runs before anything is drawn.
(() => {
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  function follow() {
    let chosen = null;
    try {
      chosen = localStorage.getItem("theme"); // the setting of Airflow's UI: light, dark or system
    } catch {
      // Without access to the storage, the theme follows the system.
    }
    const dark = chosen === "dark" || (chosen !== "light" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
  }

  follow();
  window.addEventListener("storage", follow); // the window around this one has changed it
  system.addEventListener("change", follow);
})();
