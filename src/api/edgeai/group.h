// The API groups that have Datasets and Models. Their objects mean the same; what differs on the wire is the name of the URL, and
// that those of sedna.io may name a Secret.
#pragma once

namespace varda::api {

enum class Group { kEdgeai, kSedna };

}  // namespace varda::api
