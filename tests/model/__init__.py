"""Exhaustive models of the grant protocol: where its rules come from, and what keeps them honest."""
