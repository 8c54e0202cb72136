#include "apiserver/kinds/types.h"

namespace varda::apiserver::tables {

// Types shared by all kinds (meta/v1), and bodies of requests that are not stored.
std::string_view meta() {
  return R"table(
package apimachinery/meta/v1

type ObjectMeta # Name, labels and history of an object.
  1 name string # Unique among objects of the kind in the namespace.
  2 generateName string # A prefix; the server makes the name unique.
  3 namespace string # The scope of the name.
  4 selfLink string
  5 uid string # Unique in time and space.
  6 resourceVersion string # Version of the object; an update with this value fails if the object has changed since.
  7 generation int64 # Number of changes of spec.
  8 creationTimestamp time !
  9 deletionTimestamp time
  10 deletionGracePeriodSeconds int64 *
  11 labels map:string # Keys and values that selectors match.
  12 annotations map:string # Other data about the object.
  13 ownerReferences []OwnerReference ~uid # Objects whose deletion also deletes this object.
  14 finalizers []string ~ # Controllers that must clean up before the object is removed.
  17 managedFields []any

type OwnerReference
  5 apiVersion string !
  1 kind string !
  3 name string !
  4 uid string !
  6 controller bool *
  7 blockOwnerDeletion bool *

type Condition
  1 type string !
  2 status string !
  3 observedGeneration int64
  4 lastTransitionTime time !
  5 reason string !
  6 message string !

type LabelSelector
  1 matchLabels map:string
  2 matchExpressions []LabelSelectorRequirement

type LabelSelectorRequirement
  1 key string !
  2 operator string !
  3 values []string

type DeleteOptions
  1 gracePeriodSeconds int64 *
  2 preconditions Preconditions
  3 orphanDependents bool *
  4 propagationPolicy string *
  5 dryRun []string
  6 ignoreStoreReadErrorWithClusterBreakingPotential bool *

type Preconditions
  1 uid string *
  2 resourceVersion string *

package core/v1

type Binding # Assigns a pod to a node.
  2 target ObjectReference !

package policy/v1

type Eviction # Requests the deletion of a pod.
  2 deleteOptions DeleteOptions

package autoscaling/v1

type Scale # Desired and actual replicas of a workload.
  2 spec ScaleSpec
  3 status ScaleStatus

type ScaleSpec
  1 replicas int32

type ScaleStatus
  1 replicas int32
  2 selector string

package authorization/v1

type SelfSubjectAccessReview # Checks whether the user may perform an action.
  2 spec SelfSubjectAccessReviewSpec !
  3 status SubjectAccessReviewStatus

type SelfSubjectAccessReviewSpec
  1 resourceAttributes ResourceAttributes
  2 nonResourceAttributes NonResourceAttributes

type ResourceAttributes
  1 namespace string
  2 verb string
  3 group string
  4 version string
  5 resource string
  6 subresource string
  7 name string
  8 fieldSelector any
  9 labelSelector any

type NonResourceAttributes
  1 path string
  2 verb string

type SubjectAccessReviewStatus
  1 allowed bool !
  4 denied bool
  2 reason string
  3 evaluationError string

type SelfSubjectRulesReview # Lists the actions that the user may perform in a namespace.
  2 spec SelfSubjectRulesReviewSpec !
  3 status SubjectRulesReviewStatus

type SelfSubjectRulesReviewSpec
  1 namespace string

type SubjectRulesReviewStatus
  1 resourceRules []ResourceRule
  2 nonResourceRules []NonResourceRule
  3 incomplete bool
  4 evaluationError string

type ResourceRule
  1 verbs []string
  2 apiGroups []string
  3 resources []string
  4 resourceNames []string

type NonResourceRule
  1 verbs []string
  2 nonResourceURLs []string

package authentication/v1

type SelfSubjectReview # Returns the name and groups of the user.
  2 status SelfSubjectReviewStatus

type SelfSubjectReviewStatus
  1 userInfo UserInfo

type UserInfo
  1 username string
  2 uid string
  3 groups []string
  4 extra any
)table";
}

}  // namespace varda::apiserver::tables
