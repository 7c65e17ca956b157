// Before anything is drawn: the theme that was chosen here, if one was.
(() => {
  const chosen = localStorage.getItem("fairlane-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
})();
