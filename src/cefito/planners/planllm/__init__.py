"""PlanLLM-style planning: SCHEMA with an exchange between the two states and learned queries."""
