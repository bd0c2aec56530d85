"""The machine: memory, bandwidth, and which layer lies on which device."""
