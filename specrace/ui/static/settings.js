() => {
  const panel = document.getElementById("settings"), open = panel.dataset.open !== "true";
  panel.dataset.open = String(open);
  document.getElementById("settings-button").setAttribute("aria-expanded", String(open));
}
