// SPDX-License-Identifier: Apache-2.0
// page-dom.js PAGE - prints the HTML that the script of a report's page adds to it, without a browser
"use strict";

const source = require("fs").readFileSync(process.argv[2], "utf8");
const scripts = [...source.matchAll(/<script[^>]*>([^]*?)<\/script>/g)].map((found) => found[1]);
const element = () => ({ append() {}, addEventListener() {} });
let body = "";

const page = {
	title: "",
	body: { insertAdjacentHTML: (place, text) => { body += text; } },
	getElementById: () => ({ textContent: scripts[0] }),
	querySelector: element,
	createElementNS: element,
};
new Function("document", scripts[1])(page);
console.log(`<html><head><title>${page.title}</title></head><body>${body}</body></html>`);
