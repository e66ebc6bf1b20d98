package main

import (
	"errors"
	"time"
)

func slowSyncs(d time.Duration) (restore func(), err error) {
	return nil, errors.New("not yet")
}

func countSyncs() (count func() int64, restore func(), err error) {
	return nil, nil, errors.New("not yet")
}
