"use strict";
// A name in a legend hides and shows its series: of its figure, or of all figures.
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const show = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(show));
    for (const series of (button.closest("figure") ?? document).querySelectorAll("[data-series]")) {
      if (series.dataset.series === button.textContent) series.classList.toggle("off", !show);
    }
  });
}

// The values of the point nearest to the pointer.
const tip = document.getElementById("tip");
for (const chart of document.querySelectorAll(".chart")) {
  const marks = [...chart.querySelectorAll("[data-tip]")];
  let shown = null;
  const show = (mark, x, y) => {
    shown?.classList.remove("near");
    shown = mark;
    tip.hidden = !mark;
    if (!mark) return;
    mark.classList.add("near");
    tip.textContent = mark.dataset.tip;
    const left = Math.min(x + 14, innerWidth - tip.offsetWidth - 8);
    const top = y + 18 + tip.offsetHeight > innerHeight ? y - 14 - tip.offsetHeight : y + 18;
    tip.style.transform = `translate(${Math.max(4, left)}px, ${top}px)`;
  };
  const seek = (event) => {
    let nearest = null, least = 40 ** 2;
    for (const mark of marks) {
      const box = mark.getBoundingClientRect();
      if (box.width === 0) continue;
      const dx = Math.max(box.left - event.clientX, 0, event.clientX - box.right);
      const dy = Math.max(box.top - event.clientY, 0, event.clientY - box.bottom);
      if (dx * dx + dy * dy < least) [nearest, least] = [mark, dx * dx + dy * dy];
    }
    show(nearest, event.clientX, event.clientY);
  };
  chart.addEventListener("pointermove", seek);
  chart.addEventListener("pointerdown", seek);
  chart.addEventListener("pointerleave", () => show(null));
}
