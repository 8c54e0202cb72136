#include "apiserver/kinds/types.h"

namespace varda::apiserver::tables {

// core/v1 Volume and its sources.
std::string_view volume() {
  return R"table(
package core/v1

type Volume
  1 name string !
  2.1 hostPath HostPathVolumeSource
  2.2 emptyDir EmptyDirVolumeSource
  2.3 gcePersistentDisk any
  2.4 awsElasticBlockStore any
  2.5 gitRepo any
  2.6 secret SecretVolumeSource
  2.7 nfs NFSVolumeSource
  2.8 iscsi any
  2.9 glusterfs any
  2.10 persistentVolumeClaim PersistentVolumeClaimVolumeSource
  2.11 rbd any
  2.12 flexVolume any
  2.13 cinder any
  2.14 cephfs any
  2.15 flocker any
  2.16 downwardAPI DownwardAPIVolumeSource
  2.17 fc any
  2.18 azureFile any
  2.19 configMap ConfigMapVolumeSource
  2.20 vsphereVolume any
  2.21 quobyte any
  2.22 azureDisk any
  2.23 photonPersistentDisk any
  2.26 projected ProjectedVolumeSource
  2.24 portworxVolume any
  2.25 scaleIO any
  2.27 storageos any
  2.28 csi CSIVolumeSource
  2.29 ephemeral any
  2.30 image ImageVolumeSource

type HostPathVolumeSource
  1 path string !
  2 type string * =""

type EmptyDirVolumeSource
  1 medium string
  2 sizeLimit quantity *

type SecretVolumeSource
  1 secretName string
  2 items []KeyToPath
  3 defaultMode int32 * =420
  4 optional bool *

type NFSVolumeSource
  1 server string !
  2 path string !
  3 readOnly bool

type PersistentVolumeClaimVolumeSource
  1 claimName string !
  2 readOnly bool

type ConfigMapVolumeSource
  1.1 name string
  2 items []KeyToPath
  3 defaultMode int32 * =420
  4 optional bool *

type KeyToPath
  1 key string !
  2 path string !
  3 mode int32 *

type DownwardAPIVolumeSource
  1 items []DownwardAPIVolumeFile
  2 defaultMode int32 * =420

type DownwardAPIVolumeFile
  1 path string !
  2 fieldRef ObjectFieldSelector
  3 resourceFieldRef ResourceFieldSelector
  4 mode int32 *

type ProjectedVolumeSource
  1 sources []VolumeProjection !
  2 defaultMode int32 * =420

type VolumeProjection
  1 secret SecretProjection
  2 downwardAPI DownwardAPIProjection
  3 configMap ConfigMapProjection
  4 serviceAccountToken ServiceAccountTokenProjection
  5 clusterTrustBundle any

type SecretProjection
  1.1 name string
  2 items []KeyToPath
  4 optional bool *

type ConfigMapProjection
  1.1 name string
  2 items []KeyToPath
  4 optional bool *

type DownwardAPIProjection
  1 items []DownwardAPIVolumeFile

type ServiceAccountTokenProjection
  1 audience string
  2 expirationSeconds int64 * =3600
  3 path string !

type CSIVolumeSource
  1 driver string !
  2 readOnly bool *
  3 fsType string *
  4 volumeAttributes map:string
  5 nodePublishSecretRef LocalObjectReference

type ImageVolumeSource
  1 reference string
  2 pullPolicy string
)table";
}

}  // namespace varda::apiserver::tables
