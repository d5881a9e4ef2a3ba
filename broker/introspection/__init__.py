"""State of a broker for operators: metrics, consumer lag, facts for administrators."""
