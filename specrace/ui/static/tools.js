// What stands around the stage: the step inspector, the plots, explain mode, and the buttons that turn them on.
const inspector = new Inspector(stage), plots = new Plots(stage), explainer = new Explainer(stage);
const inspectorToggle = inspector.button("Step inspector", "Show or hide the step inspector (t)", () => {
  const shows = inspector.node.hidden || inspector.node.dataset.open !== "true";
  openInspector(shows);
  if (shows) inspector.node.scrollIntoView({ block: "nearest", behavior: CALM.matches ? "auto" : "smooth" });
});
inspectorToggle.id = "inspector-toggle";

function openInspector(shows) {
  inspector.node.dataset.open = String(shows);
  inspectorToggle.setAttribute("aria-expanded", String(shows));
}

openInspector(true);
find(".results").after(inspector.node, plots.node);
find(".track").after(explainer.node);
find(".strip").append(explainer.button, inspectorToggle);
stage.addEventListener("moved", ({ detail }) => explainer.take(detail, panes[detail.lane].method));
stage.addEventListener("begun", () => explainer.begin());
