package manifests

import (
	"path"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestAChangedFileOfKindsRollsTheReplicasThatReadIt(t *testing.T) {
	names := map[string]bool{}
	for _, folder := range []string{"overlays/kinds", "overlays/kinds-later"} {
		pod, name, folderInPod, file := podsOf(t, folder)["slipway"], "", "", ""
		for _, volume := range pod.Volumes {
			if volume.Name == "kinds" && volume.ConfigMap != nil {
				name = volume.ConfigMap.Name
			}
		}
		for _, mount := range pod.Containers[0].VolumeMounts {
			if mount.Name == "kinds" && mount.ReadOnly {
				folderInPod = mount.MountPath
			}
		}
		for _, env := range pod.Containers[0].Env {
			if env.Name == "SLIPWAY_KINDS" {
				file = env.Value
			}
		}
		held := as[corev1.ConfigMap](t, find(t, folder, "ConfigMap", name))
		if held.Namespace != "slipway-system" || path.Dir(file) != folderInPod || held.Data[path.Base(file)] != string(written[folder+"/kinds.yaml"]) {
			t.Errorf("%s: %s is read, %s holds %v and is mounted at %s", folder, file, name, held.Data, folderInPod)
		}
		names[name] = true
	}
	if len(names) != 2 {
		t.Errorf("both files give %v", names)
	}
}
