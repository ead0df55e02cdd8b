// Light or dark, as Airflow's UI around this page. Not a module: it runs before anything is drawn.
(() => {
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  function follow() {
    let chosen = null;
    try {
      chosen = localStorage.getItem("theme"); // where Airflow's UI keeps it: light, dark or system
    } catch {
      // Storage is forbidden here; the system's choice is as good.
    }
    const dark = chosen === "dark" || (chosen !== "light" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
  }

  follow();
  window.addEventListener("storage", follow); // the window around this one has changed it
  system.addEventListener("change", follow);
})();
