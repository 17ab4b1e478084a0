"""The cases. Each file has those of some rules of docs/protocol.md."""
