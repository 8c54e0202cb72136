#include "apiserver/kinds/types.h"

namespace varda::apiserver::tables {

// apiextensions.k8s.io/v1.
std::string_view extensions() {
  return R"table(
package apiextensions/v1

type CustomResourceDefinition # Adds a kind of objects to the API.
  spec CustomResourceDefinitionSpec !
  status CustomResourceDefinitionStatus !

type CustomResourceDefinitionSpec
  group string ! # The API group; the definition is named PLURAL.GROUP.
  names CustomResourceDefinitionNames !
  scope string ! # Namespaced or Cluster.
  versions []CustomResourceDefinitionVersion !
  conversion CustomResourceConversion
  preserveUnknownFields bool

type CustomResourceDefinitionNames
  plural string !
  singular string
  shortNames []string
  kind string !
  listKind string
  categories []string

type CustomResourceDefinitionVersion
  name string !
  served bool !
  storage bool !
  deprecated bool
  deprecationWarning string *
  schema CustomResourceValidation
  subresources CustomResourceSubresources
  additionalPrinterColumns []CustomResourceColumnDefinition
  selectableFields []SelectableField

type CustomResourceValidation
  openAPIV3Schema JSONSchemaProps

type CustomResourceSubresources
  status EmptyObject
  scale CustomResourceSubresourceScale

type EmptyObject

type CustomResourceSubresourceScale
  specReplicasPath string !
  statusReplicasPath string !
  labelSelectorPath string *

type CustomResourceColumnDefinition
  name string !
  type string !
  format string
  description string
  priority int32
  jsonPath string !

type SelectableField
  jsonPath string !

type CustomResourceConversion
  strategy string !
  webhook any

type CustomResourceDefinitionStatus
  conditions []CustomResourceDefinitionCondition !
  acceptedNames CustomResourceDefinitionNames !
  storedVersions []string !

type CustomResourceDefinitionCondition
  type string !
  status string !
  lastTransitionTime time
  reason string
  message string

type JSONSchemaProps
  id string
  $schema string
  $ref string *
  description string
  type string
  format string
  title string
  default any
  maximum number *
  exclusiveMaximum bool
  minimum number *
  exclusiveMinimum bool
  maxLength int64 *
  minLength int64 *
  pattern string
  maxItems int64 *
  minItems int64 *
  uniqueItems bool
  multipleOf number *
  enum []any
  maxProperties int64 *
  minProperties int64 *
  required []string
  items any
  allOf []JSONSchemaProps
  oneOf []JSONSchemaProps
  anyOf []JSONSchemaProps
  not JSONSchemaProps
  properties map:JSONSchemaProps
  additionalProperties any
  patternProperties map:JSONSchemaProps
  dependencies map:any
  additionalItems any
  definitions map:JSONSchemaProps
  externalDocs any
  example any
  nullable bool
  x-kubernetes-preserve-unknown-fields bool *
  x-kubernetes-embedded-resource bool
  x-kubernetes-int-or-string bool
  x-kubernetes-list-map-keys []string
  x-kubernetes-list-type string *
  x-kubernetes-map-type string *
  x-kubernetes-validations []any
)table";
}

}  // namespace varda::apiserver::tables
