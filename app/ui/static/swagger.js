// Without this validatorUrl, the page would send the description to a service elsewhere.
const url = document.getElementById("docs").dataset.description;
SwaggerUIBundle({ dom_id: "#docs", url, validatorUrl: null, deepLinking: true });
