package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Contents is what there is: each list is sorted, and two of them compare with go-cmp or reflect.
type Contents struct {
	Claims, Snapshots                     []string // NAMESPACE/NAME in the cluster
	PersistentVolumes, SnapshotContents   []string // names in the cluster
	DriverVolumes, DriverSnapshots, Files []string // NAMESPACE/NAME at the driver, and its files
	Loops, Mounts                         []string // devices on the machine, with their file, and where the node has them mounted
}

// Contents lists what there is of a namespace, in the cluster, at the driver and on the machine; empty: all.
func (s *Storage) Contents(t testing.TB, namespace string) Contents {
	t.Helper()
	c, err := s.contents(t.Context(), namespace)
	if err != nil {
		t.Fatalf("list what there is: %v", err)
	}
	return c
}

func (s *Storage) contents(ctx context.Context, namespace string) (Contents, error) {
	var c Contents
	return c, errors.Join(s.listCluster(ctx, namespace, &c), s.listDriver(namespace, &c))
}

func (s *Storage) listCluster(ctx context.Context, namespace string, c *Contents) error {
	claims, err := s.Kube.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, claim := range claims.Items {
		c.Claims = append(c.Claims, claim.Namespace+"/"+claim.Name)
	}
	volumes, err := s.Kube.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, volume := range volumes.Items {
		if ref := volume.Spec.ClaimRef; namespace == "" || ref != nil && ref.Namespace == namespace {
			c.PersistentVolumes = append(c.PersistentVolumes, volume.Name)
		}
	}
	taken, err := s.Dynamic.Resource(snapshots).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, one := range taken.Items {
		c.Snapshots = append(c.Snapshots, one.GetNamespace()+"/"+one.GetName())
	}
	all, err := s.Dynamic.Resource(contents).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, one := range all.Items {
		ref, _ := one.Object["spec"].(map[string]any)["volumeSnapshotRef"].(map[string]any)
		if namespace == "" || ref["namespace"] == namespace {
			c.SnapshotContents = append(c.SnapshotContents, one.GetName())
		}
	}
	return nil
}

// listDriver reads the driver's files, so that it may be dead.
func (s *Storage) listDriver(namespace string, c *Contents) error {
	devices, err := s.Cluster.LoopDevices()
	if err != nil {
		return err
	}
	mounts, err := s.Cluster.LoopMounts()
	if err != nil {
		return err
	}
	for kind, objects := range map[string]*[]string{"volumes": &c.DriverVolumes, "snapshots": &c.DriverSnapshots} {
		files, err := filepath.Glob(filepath.Join(s.Cluster.StorageDir(), kind, "*"))
		if err != nil {
			return err
		}
		for _, file := range files {
			object, err := objectOf(file)
			if err != nil {
				return err
			}
			if owner, _, _ := strings.Cut(object, "/"); namespace != "" && owner != namespace {
				continue
			}
			c.Files = append(c.Files, kind+"/"+filepath.Base(file))
			if filepath.Ext(file) == ".json" {
				*objects = append(*objects, object)
			}
			for device, held := range devices {
				if held == file {
					c.Loops = append(c.Loops, device+" "+kind+"/"+filepath.Base(file))
					c.Mounts = append(c.Mounts, slices.DeleteFunc(slices.Clone(mounts), func(m string) bool { return !strings.HasPrefix(m, device+" ") })...)
				}
			}
		}
	}
	for _, list := range []*[]string{
		&c.Claims, &c.Snapshots, &c.PersistentVolumes, &c.SnapshotContents, &c.DriverVolumes, &c.DriverSnapshots, &c.Files, &c.Loops, &c.Mounts,
	} {
		slices.Sort(*list)
	}
	return nil
}

// objectOf reads what a file of the driver was made for; empty for one without a record.
func objectOf(file string) (string, error) {
	id, _, _ := strings.Cut(filepath.Base(file), ".")
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(file), id+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	var record struct{ Object string }
	if err == nil {
		err = json.Unmarshal(raw, &record)
	}
	if err != nil {
		return "", fmt.Errorf("read a record of the driver: %w", err)
	}
	return record.Object, nil
}

// goneBound is how long the end of a namespace may take, with the volumes in it.
const goneBound = 60 * time.Second

// remove deletes a namespace, with what is in it in an order that nothing of it waits for: pods, snapshots, claims. It
// fails the test if something of it is left in the end, in the cluster or on the machine.
func (s *Storage) remove(t testing.TB, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), goneBound)
	defer cancel()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	err := errors.Join(
		s.Dynamic.Resource(snapshots).Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		s.Kube.CoreV1().Namespaces().Delete(ctx, namespace, now),
	)
	if err != nil {
		t.Errorf("delete namespace %s: %v", namespace, err)
		return
	}
	for {
		_, err := s.Kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		left, listErr := s.contents(ctx, namespace)
		if apierrors.IsNotFound(err) && listErr == nil && left.none() {
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("%v after its deletion, of namespace %s is left: %+v (%v)", goneBound, namespace, left, errors.Join(err, listErr))
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c Contents) none() bool {
	return len(slices.Concat(c.Claims, c.Snapshots, c.PersistentVolumes, c.SnapshotContents, c.DriverVolumes, c.DriverSnapshots, c.Files, c.Loops, c.Mounts)) == 0
}

// IOPS is what the driver gives the volume of a claim; empty: no class said it.
func (s *Storage) IOPS(t testing.TB, namespace, claim string) string {
	t.Helper()
	id := s.Get(t, namespace, claim).Spec.VolumeName
	raw, err := os.ReadFile(filepath.Join(s.Cluster.StorageDir(), "volumes", id+".json"))
	var record struct{ IOPS string }
	if err == nil {
		err = json.Unmarshal(raw, &record)
	}
	if err != nil {
		t.Fatalf("read what the driver knows of claim %s: %v", claim, err)
	}
	return record.IOPS
}
