"""What every op means, told a second time and independently, and the judges that compare a backend with it."""
