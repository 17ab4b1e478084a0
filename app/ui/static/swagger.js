// By default, Swagger UI sends the description to an external validator. `validatorUrl: null` prevents this.
const url = document.getElementById("docs").dataset.description;
SwaggerUIBundle({ dom_id: "#docs", url, validatorUrl: null, deepLinking: true });
