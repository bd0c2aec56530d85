// What stands around the stage: the step inspector, the plots, explain mode, and the buttons that turn them on.
const inspector = new Inspector(stage), plots = new Plots(stage), explainer = new Explainer(stage);
const inspectorToggle = inspector.button("Steps", "Show or hide the step inspector (t)", () => {
  const overlay = document.body.dataset.view === "stage", shows = inspector.node.dataset[overlay ? "overlay" : "open"] !== "true";
  if (overlay) inspector.node.dataset.overlay = String(shows);
  else openInspector(shows);
  if (shows && !overlay) inspector.node.scrollIntoView({ block: "nearest", behavior: CALM.matches ? "auto" : "smooth" });
});
inspectorToggle.id = "inspector-toggle";
inspectorToggle.className = "";

function openInspector(shows) {
  inspector.node.dataset.open = String(shows);
  inspectorToggle.setAttribute("aria-expanded", String(shows));
}

openInspector(true);
find(".panes").before(explainer.node);
find(".passages").before(inspector.node, plots.node);
(document.querySelector("#menu .menu") ?? find(".strip")).prepend(explainer.button, inspectorToggle);
const settingsPanel = document.getElementById("settings");
if (settingsPanel) settingsPanel.dataset.lanes ??= props.lanes.join(" ");
stage.addEventListener("moved", ({ detail }) => explainer.take(detail, panes[detail.lane].method));
stage.addEventListener("begun", ({ detail }) => explainer.begin(detail.live));
stage.addEventListener("cursor", ({ detail }) => player.playing || lightStep(detail));
passages.watch(find(".panes"));

// The step that is stood on shows where its words came from.
function lightStep({ lane, step }) {
  passages.pointAtRun(panes[lane]?.body.querySelector(`.run[data-step="${step}"]`));
}
