// Without validatorUrl the page would have a service elsewhere check the description.
SwaggerUIBundle({
  dom_id: "#docs",
  url: document.getElementById("docs").dataset.description,
  validatorUrl: null,
  deepLinking: true,
});
