module github.com/godflash/godflash/testdata

go 1.27.0
