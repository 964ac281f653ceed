#include "behaviour.h"

namespace gpu {

int Device::attribute(int number) const {
    const auto found = attributes.find(number);
    return found == attributes.end() ? 0 : found->second;
}

bool uses_host_page_tables(const Device &device) { return device.attribute(attribute_host_tables) != 0; }

bool takes_read_only_flag(const Device &device) {
    return device.attribute(attribute_read_only) != 0 || uses_host_page_tables(device);
}

bool uses_host_address(const Device &device) { return device.attribute(attribute_host_address) != 0; }

bool refuses_512_gib(const Device &device) { return device.driver_version >= 13000; }

bool set_device_creates_context(const Device &device) { return device.runtime_version >= 12000; }

std::string answer(std::initializer_list<Word> words) {
    std::string all;
    for (const Word &word : words) {
        if (!all.empty()) all += ' ';
        all += word.text;
    }
    return all;
}

} // namespace gpu
