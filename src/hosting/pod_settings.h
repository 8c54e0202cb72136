// The user's settings for the pods of our servers. Pure; shared by the kinds that make such pods.
#pragma once

#include "api/ai/pod_settings.h"
#include "api/core/pod.h"
#include "codec/json.h"

namespace varda::hosting {

/// Adds the settings to the planned pod. Its containers get the resources, and after their own
/// variables those of `env` with other names. Its init containers do not.
void add_settings(const api::PodSettings& settings, api::PodSpec& pod);

/// The settings in the API server's form, with canonical amounts. Unset members are absent. A pod
/// that cannot change is replaced when this object changes.
codec::Json requested_settings(const api::PodSettings& settings);

}  // namespace varda::hosting
