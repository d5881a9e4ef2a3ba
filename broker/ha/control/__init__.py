"""The broker and its controllers: enrolment, heartbeats, elections, notices."""
