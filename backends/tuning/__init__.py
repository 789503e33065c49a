"""The checklist: facts, rules, findings, fixes."""
