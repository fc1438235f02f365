"""What is deployed: units, opt-in, package, alerts, roles."""
