"""The broker and its controllers: enrolment, heartbeats, elections, what they say."""
