"""The served model. Edit this file: METADATA declares inputs and outputs, load() and predict() implement the model."""

import os
from threading import Lock

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the workers use all CPU cores

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

# app/api.py lists all names that a model can import from the service.
# Other modules of app/ can change with each version.
from app.api import InvalidInput, MetadataTensor, ModelMetadata, model_file

METADATA = ModelMetadata(
    name="messages",
    version="1",
    platform="transformers_safetensors",
    inputs=[MetadataTensor("text", "BYTES", [-1], content_type="str")],
    outputs=[
        MetadataTensor("label", "BYTES", [-1], content_type="str"),
        MetadataTensor("score", "FP32", [-1]),
    ],
)
EXAMPLE = {
    "text": ["Why was my credit card charged twice?"]
}  # for the warm-up and the startup message
TOKENIZING = Lock()


def load():
    """Load and return the model, the first argument of predict(). Called once per worker at startup."""
    disable_progress_bar()
    folder = model_file("tokenizer.json").parent
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return tokenizer, AutoModelForSequenceClassification.from_pretrained(
        folder, local_files_only=True
    ).eval()


@torch.inference_mode()
def predict(model, text: list[str]):
    """Return the outputs by name. Each input is one parameter. Several threads can call this function concurrently.

    `text`: messages. They are truncated to the model's maximum length.
    """
    if None in text:
        raise InvalidInput("Text: missing value. Expected text, got null.")
    if not text:  # the tokenizer rejects an empty list
        return {"label": [], "score": []}
    tokenizer, classifier = model
    with TOKENIZING:  # a call changes the tokenizer's options for every thread
        tokens = tokenizer(text, padding=True, truncation=True, return_tensors="pt")
    scores, best = classifier(**tokens).logits.softmax(dim=-1).max(dim=-1)
    return {
        "label": [classifier.config.id2label[index] for index in best.tolist()],
        "score": scores.numpy(),
    }
