"""The profile of a real backend: a short, bounded load, and the speed that explains what was seen (docs/profile.md)."""
