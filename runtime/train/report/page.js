"use strict";
document.querySelectorAll(".chart").forEach(function (chart) {
	const frame = chart.querySelector(".frame"), plot = chart.querySelector(".plot");
	const steps = Number(chart.dataset.steps), unit = chart.dataset.unit;
	const name = "http://www.w3.org/2000/svg", title = frame.querySelector("title");
	const pairs = function (text) {
		const all = text.trim().split(/\s+/), found = [];
		for (let i = 0; all.length > i; i += 2)
			found.push([Number(all[i]), Number(all[i + 1])]);
		return found;
	};
	const series = Array.from(chart.querySelectorAll("[data-p]"), function (path) {
		return { name: path.dataset.name, tone: path.classList[1],
			places: pairs(path.dataset.p), values: pairs(path.dataset.v) };
	}).reverse();
	const main = series[0];
	const made = [], box = document.createElement("div");
	let at = -1;

	if (!main)
		return;
	/* The browser's own tooltip would lie over ours. */
	frame.setAttribute("aria-label", title.textContent);
	frame.removeAttribute("aria-labelledby");
	frame.setAttribute("aria-describedby", frame.querySelector("desc").id);
	title.remove();
	box.className = "read";
	box.setAttribute("aria-live", "polite");
	box.hidden = true;
	plot.append(box);

	const draw = function (kind, attributes) {
		const one = document.createElementNS(name, kind);
		for (const key in attributes)
			one.setAttribute(key, attributes[key]);
		frame.append(one);
		made.push(one);
	};
	const nearest = function (places, x) {
		let best = 0;
		places.forEach(function (place, i) {
			if (Math.abs(places[best][0] - x) > Math.abs(place[0] - x))
				best = i;
		});
		return best;
	};
	const hide = function () {
		while (made.length)
			made.pop().remove();
		box.hidden = true;
		at = -1;
	};
	const show = function (i) {
		const x = main.places[i][0], step = main.values[i][0], line = document.createElement("b");
		hide();
		at = i;
		draw("line", { class: "cursor", x1: x / 10 + "%", x2: x / 10 + "%", y1: 0, y2: "100%" });
		line.textContent = "step " + step.toLocaleString("en") +
			" (epoch " + (step / steps).toFixed(2) + ")";
		box.replaceChildren(line);
		series.forEach(function (one) {
			const j = nearest(one.places, x), row = document.createElement("div");
			const dot = document.createElement("i"), value = one.values[j][1];
			/* A test far from here has nothing to say about here. */
			if (Math.abs(one.places[j][0] - x) > 60)
				return;
			draw("circle", { class: "point " + one.tone, r: 5,
				cx: one.places[j][0] / 10 + "%", cy: one.places[j][1] / 10 + "%" });
			dot.className = one.tone;
			row.append(dot, one.name + " " + (Math.abs(value) >= 1000 ?
				value.toLocaleString("en", { maximumFractionDigits: 0 }) : value) + unit);
			box.append(row);
		});
		box.hidden = false;
		box.style.left = x > 500 ? "auto" : "calc(" + x / 10 + "% + 12px)";
		box.style.right = x > 500 ? "calc(" + (100 - x / 10) + "% + 12px)" : "auto";
	};
	frame.addEventListener("pointermove", function (event) {
		const place = frame.getBoundingClientRect();
		show(nearest(main.places, (event.clientX - place.left) / place.width * 1000));
	});
	frame.addEventListener("pointerleave", hide);
	frame.addEventListener("blur", hide);
	frame.addEventListener("keydown", function (event) {
		const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
		if (event.key === "Escape")
			hide();
		if (!move)
			return;
		event.preventDefault();
		show(Math.min(Math.max((0 > at ? main.places.length - 1 : at) + move, 0),
			main.places.length - 1));
	});
});
