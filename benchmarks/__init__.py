"""Speed measurements. Alternatives are measured side by side in one run: make bench"""
