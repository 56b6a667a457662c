"""A model of the employee API in plain Python, and rules that send random requests to the model and to the API."""
