//! What the command lines of each manager and monitor tell.

use super::super::testing::Process;
use super::super::*;
use super::{QEMU, found, told, tree};

#[test]
fn libvirt() {
    let vm = found(&Process::libvirt(4711, "web", 2)).unwrap();
    assert_eq!((vm.name.as_str(), vm.monitor, &vm.manager), ("web", Monitor::Qemu, &Manager::Libvirt));
    assert_eq!(vm.identity, Identity { pid: 4711, start_ticks: 5711 });
    assert_eq!(vm.memory_bytes, Some(4 << 30));
}

#[test]
fn libvirt_with_dimms_and_devices() {
    let arguments = [
        "-name",
        "guest=a,,b,debug-threads=on",
        "-object",
        "secret,id=masterKey0,format=raw,file=/x",
        "-m",
        "size=1048576k,slots=16,maxmem=1099511627776k",
        "-object",
        r#"{"qom-type":"memory-backend-ram","id":"memdimm0","size":536870912}"#,
        "-device",
        r#"{"driver":"pc-dimm","node":0,"memdev":"memdimm0","id":"dimm0","slot":0}"#,
        "-device",
        r#"{"driver":"vfio-pci","host":"0000:81:00.0","id":"hostdev0","bus":"pci.5","addr":"0x0"}"#,
        "-device",
        "virtio-net-pci,host=no",
    ];
    let expected = ("a,b".into(), Manager::Libvirt, Some(1536), vec!["0000:81:00.0".into()]);
    assert_eq!(told(QEMU, "CPU 0/KVM", &arguments), expected);
}

#[test]
fn proxmox() {
    let (_folder, tree) = tree();
    let process = Process::proxmox(900, 100, "mail", 4);
    tree.process(&process);
    let vm = examine(tree.root(), 900).unwrap();
    assert_eq!((vm.name.as_str(), &vm.manager), ("mail", &Manager::Proxmox { id: 100 }));
    assert_eq!(vm.memory_bytes, Some(4 << 30));
    let cgroup = vm.read_limits(&vm.read_threads(), &[]).cgroup.unwrap();
    assert_eq!((cgroup.path.to_str(), cgroup.is_own), (Some("/qemu.slice/100.scope"), true));
}

#[test]
fn proxmox_passes_devices_through() {
    let arguments =
        ["-id", "7", "-name", "gpu", "-m", "2048", "-device", "vfio-pci,host=81:00.0,id=hostpci0"];
    let expected = ("gpu".into(), Manager::Proxmox { id: 7 }, Some(2048), vec!["0000:81:00.0".into()]);
    assert_eq!(told("/usr/bin/kvm", "CPU 0/KVM", &arguments), expected);
}

#[test]
fn lxd_and_incus_have_projects() {
    let file = "[memory]\nsize = \"1024M\"\n[device \"dev-lxd_gpu\"]\ndriver = \"vfio-pci\"\nhost = \"0000:02:00.0\"\n";
    let lxd = |project: &str| Manager::Lxd { project: project.into() };
    let incus = |project: &str| Manager::Incus { project: project.into() };
    let cases = [
        ("/var/snap/lxd/common/lxd/logs/v1/qemu.conf", lxd("default")),
        ("/var/snap/lxd/common/lxd/logs/shop_v1/qemu.conf", lxd("shop")),
        ("/var/log/lxd/v1/qemu.conf", lxd("default")),
        ("/run/incus/shop_v1/qemu.conf", incus("shop")),
        ("/var/log/incus/v1/qemu.conf", incus("default")),
    ];
    for (path, manager) in cases {
        let (_folder, tree) = tree();
        tree.write(&path[1..], file);
        tree.process(&Process::lxd_or_incus(50, "v1", path, 2));
        let vm = examine(tree.root(), 50).unwrap();
        assert_eq!((vm.name.as_str(), vm.manager), ("v1", manager), "{path}");
        assert_eq!((vm.memory_bytes, vm.devices[0].name.as_str()), (Some(1 << 30), "0000:02:00.0"));
    }
}

#[test]
fn by_hand() {
    let cases: [(&[&str], &str); 6] = [
        (&["-name", "x,debug-threads=on"], "x"),
        (&["-name", "process=y,guest=z"], "z"),
        (&["-drive", "if=pflash,file=/usr/share/OVMF.fd", "-drive", "file=/srv/db.qcow2,format=qcow2"], "db"),
        (&["-blockdev", r#"{"driver":"raw","file":{"driver":"file","filename":"/srv/db.img"}}"#], "db"),
        (&["-hda", "disk.img"], "disk"),
        (&["-name", ""], "qemu-7"),
    ];
    for (arguments, name) in cases {
        assert_eq!(told(QEMU, "CPU 0/TCG", arguments), (name.into(), Manager::None, None, vec![]), "{name}");
    }
}

#[test]
fn cloud_hypervisor() {
    let program = "/usr/bin/cloud-hypervisor";
    let arguments = [
        "--api-socket",
        "/run/ch/web.sock",
        "--memory",
        "size=4G,shared=on",
        "--device",
        "path=/sys/bus/pci/devices/0000:01:00.0/",
        "path=/sys/bus/pci/devices/0000:01:00.1/",
    ];
    let devices = vec!["0000:01:00.0".into(), "0000:01:00.1".into()];
    assert_eq!(told(program, "vcpu0", &arguments), ("web".into(), Manager::None, Some(4096), devices));
    let zones =
        ["--memory", "size=0", "--memory-zone", "id=a,size=1G", "id=b,size=512M", "--api-socket=path=/a/b"];
    assert_eq!(told(program, "vcpu0", &zones), ("b".into(), Manager::None, Some(1536), vec![]));
    let fifo = ["--api-socket", "fd=20", "--event-monitor", "path=/run/libvirt/ch/web-monitor-fifo"];
    assert_eq!(told(program, "vcpu0", &fifo), ("web".into(), Manager::Libvirt, None, vec![]));

    let scope = "/machine.slice/machine-ch\\x2d1\\x2dmy\\x2dvm.scope/libvirt/emulator";
    let process = Process::new(7, program, &["--api-socket", "fd=20"]).thread("vcpu0").in_cgroup(scope);
    let vm = found(&process).unwrap();
    assert_eq!((vm.name.as_str(), vm.manager), ("my-vm", Manager::Libvirt));
}

#[test]
fn firecracker() {
    let (_folder, tree) = tree();
    let config = r#"{"machine-config": {"vcpu_count": 1, "mem_size_mib": 512}}"#;
    let arguments = ["--id", "web", "--config-file", "/vm.json"];
    tree.process(
        &Process::new(7, "/firecracker-v1.7.0-x86_64", &arguments).thread("fc_api").thread("fc_vcpu 0"),
    );
    tree.write("proc/7/root/vm.json", config);
    let vm = examine(tree.root(), 7).unwrap();
    assert_eq!(
        (vm.name.as_str(), vm.monitor, vm.memory_bytes),
        ("web", Monitor::Firecracker, Some(512 << 20))
    );
    let of_socket = told("/usr/bin/firecracker", "fc_vcpu 0", &["--api-sock", "/run/db.socket"]);
    assert_eq!(of_socket, ("db".into(), Manager::None, None, vec![]));
    assert_eq!(told("/usr/bin/firecracker", "fc_vcpu 0", &[]).0, "firecracker-7");
}

#[test]
fn memory_that_nobody_tells_is_the_largest_mapping() {
    let (_folder, tree) = tree();
    tree.process(&Process::new(7, "/usr/bin/firecracker", &[]).thread("fc_vcpu 0"));
    tree.write(
        "proc/7/maps",
        "5000-6000 r-xp 0 0:0 0 /usr/bin/firecracker\n7f0000000000-7f0020000000 rw-p 0 0:0 0\n",
    );
    assert_eq!(examine(tree.root(), 7).unwrap().memory_bytes, Some(512 << 20));
}
