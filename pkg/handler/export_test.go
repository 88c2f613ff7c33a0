package handler

// ExampleMain is the example of this package, which the test's own binary becomes where a test asks for it.
var ExampleMain func()
