// Text form of device profiles: one JSON object, as traces/FORMAT.md describes.
#pragma once

#include <string>
#include <string_view>

#include "ir/device_profile.h"
#include "ir/result.h"

namespace superneurons {

Result<DeviceProfile> read_profile(const std::string& path);
Result<DeviceProfile> parse_profile(std::string_view text, const std::string& name);
std::string format_profile(const DeviceProfile& profile);
Status write_profile(const DeviceProfile& profile, const std::string& path);

}  // namespace superneurons
