package task

import "time"

// The tests' clock, Task and Attempt. Durations are chosen so that no two bounds coincide.
var t0 = time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

func someTask() Task {
	return Task{ID: "0c5c0f6e-8f0b-4b6e-9d0e-1f2a3b4c5d6e", Spec: Spec{
		Idempotent: true, Retry: DefaultRetry(),
		StartDeadline: 120, Capacity: 3600, RunDeadline: 600, Grace: 30, FenceAfter: 300,
	}}
}

// fence is when an Attempt of someTask may be handed on without proof, since its last sign.
const fence = (300 + 30 + 30) * time.Second

func leased() Attempt { return Attempt{ID: 7, Fence: 41, Number: 1, State: Leased, ClaimedAt: t0} }

func launched() Attempt {
	a := leased()
	a.State, a.JobName, a.LaunchedAt = Launched, "job", t0
	return a
}

func started() Attempt {
	a := launched()
	a.State, a.PodUID, a.StartedAt = Started, "pod-1", t0
	return a
}

func stopped(a Attempt, why StopReason) Attempt {
	a.Stop, a.StopAt = why, t0
	return a
}

func saying(a Attempt, o Outcome, r Reason) Attempt {
	a.Report = &Report{Outcome: o, Reason: r, At: t0}
	return a
}

func having(a Attempt, pods ...KnownPod) Attempt {
	a.Pods = pods
	return a
}

// Jobs.
func alive() *SeenJob    { return &SeenJob{UID: "job-1", Name: "job"} }
func over() *SeenJob     { return &SeenJob{UID: "job-1", Name: "job", Ended: true} }
func deleting() *SeenJob { return &SeenJob{UID: "job-1", Name: "job", Deleting: true} }
func suspended() *SeenJob {
	return &SeenJob{UID: "job-1", Name: "job", Suspended: true}
}

// Pods.
func pod(phase string, containers ...SeenContainer) SeenPod {
	for i := range containers {
		containers[i].Name, containers[i].Main = "main", true
	}
	return SeenPod{UID: "pod-1", Name: "p1", Node: "node", Created: t0, Phase: phase, Containers: containers}
}

func runningPod() SeenPod { return pod("Running", SeenContainer{Running: true}) }

func waitingPod(reason, message string) SeenPod {
	return pod("Pending", SeenContainer{Waiting: reason, WaitingFor: message})
}

func unbound() SeenPod {
	p := pod("Pending")
	p.Node = ""
	return p
}

func endedPod(code int, reason, message string) SeenPod {
	phase := "Succeeded"
	if code != 0 {
		phase = "Failed"
	}
	return pod(phase, SeenContainer{Terminated: &Terminated{ExitCode: code, Reason: reason, Message: message}})
}

func (p SeenPod) with(change func(*SeenPod)) SeenPod {
	change(&p)
	return p
}

func second(p SeenPod) SeenPod {
	p.UID, p.Name, p.Created = "pod-2", "p2", at(time.Second)
	return p
}

func live(j *SeenJob, pods ...SeenPod) Seen { return Seen{Live: true, Job: j, Pods: pods} }

func cached(j *SeenJob, pods ...SeenPod) Seen { return Seen{Job: j, Pods: pods} }

func asked(s Seen, r *Refusal) Seen {
	s.Asked, s.Refusal = true, r
	return s
}

// beside is a pod whose main container has ended while a second one runs on.
func beside() SeenPod {
	p := endedPod(0, "Completed", "")
	p.Phase = "Running"
	p.Containers = append(p.Containers, SeenContainer{Name: "mesh", Running: true})
	return p
}
