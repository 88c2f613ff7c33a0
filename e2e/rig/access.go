package rig

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"slipway.dev/slipway/e2e/proxy"
)

// account is who the control planes are: the one of manifests/base, and nothing more.
const accountNamespace, account = "slipway-system", "slipway"

// access names the files that a control plane reaches the API server by. Token and authority are files of their own, as
// in a pod, so that each can be replaced.
type access struct{ kubeconfig, token, authority string }

func (r *Rig) access() access { return accessIn(filepath.Join(r.dir, "slipway")) }

func accessIn(stem string) access {
	return access{kubeconfig: stem + ".kubeconfig", token: stem + ".token", authority: stem + ".authority"}
}

// admit makes what a points to.
func (r *Rig) admit(t testing.TB, a access, server string, authority []byte) {
	t.Helper()
	replaceFile(t, a.authority, authority)
	replaceFile(t, a.token, []byte(r.token(t, accountNamespace, account, &authenticationv1.TokenRequestSpec{})))
	config := clientcmdapi.NewConfig()
	config.Clusters["rig"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: a.authority}
	config.AuthInfos["slipway"] = &clientcmdapi.AuthInfo{TokenFile: a.token}
	config.Contexts["rig"] = &clientcmdapi.Context{Cluster: "rig", AuthInfo: "slipway"}
	config.CurrentContext = "rig"
	if err := clientcmd.WriteToFile(*config, a.kubeconfig); err != nil {
		t.Fatalf("write a kubeconfig: %v", err)
	}
}

// replaceFile replaces a file in one step: nobody reads a half.
func replaceFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatalf("write %s: %v", path, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatalf("write %s: %v", path, err)
	}
}

// behindAPI puts a fault proxy between the replica and the API server.
func (p *Replica) behindAPI(t testing.TB, seed uint64) {
	t.Helper()
	r := p.rig
	api, err := proxy.NewAPI(context.Background(), proxy.APIOptions{
		Server: r.Cluster.APIServer, Authority: r.authority(t), Host: r.Cluster.HostIP, Seed: seed,
	})
	if err != nil {
		t.Fatalf("stand between %s and the API server: %v", p.Name, err)
	}
	t.Cleanup(api.Close)
	p.Cluster = api
	r.admit(t, p.access(), api.URL(), api.CA())
}

func (p *Replica) access() access {
	if p.Cluster == nil {
		return p.rig.access()
	}
	return accessIn(filepath.Join(p.rig.dir, p.Name))
}

// RevocableToken is a token of the control planes' account that can be taken back.
type RevocableToken struct {
	rig           *Rig
	holder, token string
}

// RevocableToken puts a new token in the place of the replica's. The one before is good until it is revoked itself.
func (p *Replica) RevocableToken(t testing.TB) RevocableToken {
	t.Helper()
	secrets := p.rig.Kube.CoreV1().Secrets(accountNamespace)
	holder, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "rig-token-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("make what a token is bound to: %v", err)
	}
	token := p.rig.token(t, accountNamespace, account, &authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Secret", APIVersion: "v1", Name: holder.Name, UID: holder.UID},
	})
	replaceFile(t, p.access().token, []byte(token))
	return RevocableToken{rig: p.rig, holder: holder.Name, token: token}
}

// Revoke returns when the API server refuses the token.
func (k RevocableToken) Revoke(t testing.TB) {
	t.Helper()
	if err := k.rig.Kube.CoreV1().Secrets(accountNamespace).Delete(t.Context(), k.holder, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("revoke a token: %v", err)
	}
	Eventually(t, "the token to be refused", func(ctx context.Context) (bool, error) {
		review, err := k.rig.Kube.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: k.token},
		}, metav1.CreateOptions{})
		return err == nil && !review.Status.Authenticated, err
	})
}

// TrustCluster replaces the replica's file of the API server's authority by that which the proxy's certificate has now.
func (p *Replica) TrustCluster(t testing.TB) {
	t.Helper()
	replaceFile(t, p.access().authority, p.Cluster.CA())
}
