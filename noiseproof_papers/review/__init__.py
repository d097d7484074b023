"""What a review is worth: experiments of our own, of no paper."""
