module proxy

go 1.21
