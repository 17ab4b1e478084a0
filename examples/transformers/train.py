"""Train this example's model, a small BERT for messages: python examples/transformers/train.py [model folder]

messages.csv contains fictitious messages from a shop's customers: 100 for training and 20 for
testing. The model is trained from scratch. A fine-tuned larger model is saved and served in the
same way.
"""

import csv
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
SPECIAL = {
    name: f"[{name[:-6].upper()}]" for name in ("pad_token", "unk_token", "cls_token", "sep_token")
}
LONGEST = 64


def read_messages(part: str = "train") -> tuple[list[str], list[str]]:
    """Return the texts of a part and their labels."""
    with (HERE / "messages.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["part"] == part]
    return [row["text"] for row in rows], [row["label"] for row in rows]


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Return a BERT tokenizer with the words in `texts` as its pieces, and their letters for unknown words."""
    normalizer, splitter = (
        normalizers.BertNormalizer(lowercase=True),
        pre_tokenizers.BertPreTokenizer(),
    )
    words = {
        word
        for text in texts
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))
    }
    letters = sorted(set("".join(words)))
    pieces = dict.fromkeys(
        [*SPECIAL.values(), *letters, *(f"##{letter}" for letter in letters), *sorted(words)]
    )
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.post_processor = processors.BertProcessing(
        *((token, tokenizer.token_to_id(token)) for token in ("[SEP]", "[CLS]"))
    )
    names = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=LONGEST, model_input_names=names, **SPECIAL
    )


def train(
    tokenizer: PreTrainedTokenizerFast, texts: list[str], labels: list[str], steps: int = 150
) -> BertForSequenceClassification:
    """Return a BERT with one layer, trained with one thread so that every run gives the same sums."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    names = sorted(set(labels))
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LONGEST,
        pad_token_id=tokenizer.pad_token_id,
        id2label=dict(enumerate(names)),
        label2id={name: index for index, name in enumerate(names)},
    )
    model = BertForSequenceClassification(config).train()
    tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    targets = torch.tensor([names.index(label) for label in labels])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**tokens, labels=targets).loss.backward()
        optimizer.step()
    return model.eval()


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent.parent / "model"
    texts, labels = read_messages()
    tokenizer = make_tokenizer(texts)
    tokenizer.save_pretrained(folder)
    train(tokenizer, texts, labels).save_pretrained(folder)
    print(f"wrote a model and its tokenizer to {folder}")
