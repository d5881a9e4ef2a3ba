"""What a broker shows of itself: metrics, consumer lag, facts for administrators."""
