"""From what people have (videos, features, pictures, names) to the plans of a run."""
