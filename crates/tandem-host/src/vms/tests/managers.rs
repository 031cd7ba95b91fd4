//! The descriptions in the command lines of each manager and monitor.

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
fn memory_without_an_option_is_the_largest_mapping() {
    let (_folder, tree) = tree();
    tree.process(&Process::new(7, "/usr/bin/firecracker", &[]).thread("fc_vcpu 0"));
    tree.write(
        "proc/7/maps",
        "5000-6000 r-xp 0 0:0 0 /usr/bin/firecracker\n7f0000000000-7f0020000000 rw-p 0 0:0 0\n",
    );
    assert_eq!(examine(tree.root(), 7).unwrap().memory_bytes, Some(512 << 20));
}

/// The virtual nodes of a VM with that command line.
fn virtual_nodes(program: &str, vcpu: &str, arguments: &[&str]) -> Vec<VirtualNode> {
    found(&Process::new(7, program, arguments).thread(vcpu)).unwrap().virtual_nodes
}

fn virtual_node(number: u32, vcpus: &[u32], memory_mib: u64, host_nodes: &[u32]) -> VirtualNode {
    let (vcpus, host_nodes) = (vcpus.to_vec(), host_nodes.to_vec());
    VirtualNode { number, vcpus, memory_bytes: Some(memory_mib << 20), host_nodes }
}

#[test]
fn libvirt_with_virtual_nodes() {
    let arguments = [
        "-smp",
        "4,sockets=4,cores=1,threads=1",
        "-object",
        r#"{"qom-type":"memory-backend-ram","id":"ram-node0","size":1073741824,"host-nodes":[1],"policy":"bind"}"#,
        "-numa",
        "node,nodeid=0,cpus=0,cpus=3,memdev=ram-node0",
        "-object",
        r#"{"qom-type":"memory-backend-ram","id":"ram-node1","size":536870912}"#,
        "-numa",
        "node,nodeid=1,cpus=1-2,memdev=ram-node1",
        "-numa",
        "dist,src=0,dst=1,val=20",
    ];
    let expected = [virtual_node(0, &[0, 3], 1024, &[1]), virtual_node(1, &[1, 2], 512, &[])];
    assert_eq!(virtual_nodes(QEMU, "CPU 0/KVM", &arguments), expected);
}

#[test]
fn virtual_nodes_in_a_file_of_lxd() {
    let file = "[smp-opts]\ncpus = \"2\"\nsockets = \"1\"\ncores = \"2\"\nthreads = \"1\"\n\
        [object \"mem0\"]\nsize = \"1024M\"\npolicy = \"bind\"\nhost-nodes.0 = \"1\"\n\
        [numa]\ntype = \"node\"\nnodeid = \"0\"\nmemdev = \"mem0\"\n\
        [numa]\ntype = \"cpu\"\nnode-id = \"0\"\nsocket-id = \"0\"\ncore-id = \"0\"\nthread-id = \"0\"\n\
        [numa]\ntype = \"cpu\"\nnode-id = \"1\"\nsocket-id = \"0\"\ncore-id = \"1\"\nthread-id = \"0\"\n";
    let (_folder, tree) = tree();
    let path = "/var/log/lxd/web/qemu.conf";
    tree.write(&path[1..], file);
    tree.process(&Process::lxd_or_incus(7, "web", path, 2));
    let nodes = examine(tree.root(), 7).unwrap().virtual_nodes;
    let told: Vec<_> = nodes.iter().map(|node| (node.vcpus.as_slice(), node.host_nodes.as_slice())).collect();
    assert_eq!(told, [(&[0][..], &[1][..]), (&[1], &[])]);
}

#[test]
fn cloud_hypervisor_with_virtual_nodes() {
    let arguments = [
        "--cpus",
        "boot=4",
        "--memory",
        "size=0",
        "--memory-zone",
        "id=a,size=1G,host_numa_node=1",
        "id=b,size=512M",
        "id=c,size=512M",
        "--numa",
        "guest_numa_id=0,cpus=[0,2],distances=[1@20],memory_zones=a",
        "guest_numa_id=1,cpus=[1,3],memory_zones=[b,c]",
        "guest_numa_id=2,memory_zones=[x]",
    ];
    let expected = [virtual_node(0, &[0, 2], 1024, &[1]), virtual_node(1, &[1, 3], 1024, &[])];
    assert_eq!(virtual_nodes("/usr/bin/cloud-hypervisor", "vcpu0", &arguments), expected);
}
