"""How staged rows reach the service: one drain, its pace, its care and its breaker."""
