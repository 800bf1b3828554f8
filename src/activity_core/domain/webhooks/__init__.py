"""Webhook requests, judged without clock or I/O: who sent it (`schemes`, `sns`), what it says (`bodies`), which event it
is (`identity`), whether it is a handshake (`handshakes`), what known senders do (`presets`), and all in order (`receiving`).
"""
